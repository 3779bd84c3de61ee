-- Whether a server is deleted or about to be, so that this is known without its cell. There is no default: a row of before has NULL and
-- counts as living, until the online data migration has asked its cell.

ALTER TABLE instance_mappings ADD COLUMN queued_for_delete SMALLINT;

-- Rows are never erased, so the living are indexed apart from those that are gone, in the order of lists.
CREATE INDEX instance_mappings_living_project ON instance_mappings (project_id, cell_id, created_at DESC, instance_uuid)
    WHERE queued_for_delete IS DISTINCT FROM 1;
CREATE INDEX instance_mappings_living_cell ON instance_mappings (cell_id, created_at DESC, instance_uuid)
    WHERE queued_for_delete IS DISTINCT FROM 1;
-- Empty once all is migrated.
CREATE INDEX instance_mappings_unmigrated ON instance_mappings (cell_id, id)
    WHERE queued_for_delete IS NULL;
