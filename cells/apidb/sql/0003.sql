-- Which database each cell has, so that another one, or an older copy, is noticed: epoch and the highest revision that was seen of the right one, and
-- what was seen instead ('' and 0: nothing).
CREATE TABLE cell_databases (
    cell_id $int NOT NULL $sqlite(PRIMARY KEY REFERENCES cell_mappings (id) ON DELETE CASCADE),
    epoch $text(255) NOT NULL,
    revision $int NOT NULL,
    suspect_epoch $text(255) NOT NULL DEFAULT '',
    suspect_revision $int NOT NULL DEFAULT 0,
    suspect_since $time NOT NULL DEFAULT 0,
    $servers(PRIMARY KEY (cell_id)),
    $servers(CONSTRAINT cell_databases_cell_id FOREIGN KEY (cell_id) REFERENCES cell_mappings (id) ON DELETE CASCADE),
) $innodb;
