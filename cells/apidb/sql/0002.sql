-- Whether a server is deleted or about to be, so that this is known without its cell. There is no default: a row of before has NULL and
-- counts as living, until the online data migration has asked its cell.

ALTER TABLE instance_mappings ADD COLUMN queued_for_delete $small;

-- Rows are never erased, so the living are indexed apart from those that are gone, in the order of
-- lists. Without partial indexes, in MariaDB, the living ones are those with 0 and with NULL.
CREATE INDEX instance_mappings_living_project ON instance_mappings (project_id, $mysql(queued_for_delete,) cell_id, created_at DESC, instance_uuid)
    $notmysql(WHERE queued_for_delete $sqlite(IS NOT) $postgres(IS DISTINCT FROM) 1);
CREATE INDEX instance_mappings_living_cell ON instance_mappings (cell_id, $mysql(queued_for_delete,) created_at DESC, instance_uuid)
    $notmysql(WHERE queued_for_delete $sqlite(IS NOT) $postgres(IS DISTINCT FROM) 1);
-- Empty once all is migrated.
$notmysql(CREATE INDEX instance_mappings_unmigrated ON instance_mappings $sqlite((cell_id)) $postgres((cell_id, id))
    WHERE queued_for_delete IS NULL);
