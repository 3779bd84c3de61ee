-- Which database each cell has, so that another one, or an older copy, is noticed: epoch and the highest revision that was seen of the right one, and
-- what was seen instead ('' and 0: nothing).
CREATE TABLE cell_databases (
    cell_id INTEGER NOT NULL PRIMARY KEY REFERENCES cell_mappings (id) ON DELETE CASCADE,
    epoch TEXT NOT NULL,
    revision INTEGER NOT NULL,
    suspect_epoch TEXT NOT NULL DEFAULT '',
    suspect_revision INTEGER NOT NULL DEFAULT 0,
    suspect_since INTEGER NOT NULL DEFAULT 0
);
