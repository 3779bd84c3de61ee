-- Whether a server is deleted or about to be, so that this is known without its cell. There is no default: a row of before has NULL and
-- counts as living, until the online data migration has asked its cell.

ALTER TABLE instance_mappings ADD COLUMN queued_for_delete SMALLINT;

-- Rows are never erased. Without partial indexes, the living ones are those with 0 and with NULL, each in the order of lists.
CREATE INDEX instance_mappings_living_project ON instance_mappings (project_id, queued_for_delete, cell_id, created_at DESC, instance_uuid);
CREATE INDEX instance_mappings_living_cell ON instance_mappings (cell_id, queued_for_delete, created_at DESC, instance_uuid);
