-- Which database each cell has, so that another one, or an older copy, is noticed: epoch and the highest revision that was seen of the right one, and
-- what was seen instead ('' and 0: nothing).
CREATE TABLE cell_databases (
    cell_id BIGINT NOT NULL,
    epoch VARCHAR(255) NOT NULL,
    revision BIGINT NOT NULL,
    suspect_epoch VARCHAR(255) NOT NULL DEFAULT '',
    suspect_revision BIGINT NOT NULL DEFAULT 0,
    suspect_since BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (cell_id),
    CONSTRAINT cell_databases_cell_id FOREIGN KEY (cell_id) REFERENCES cell_mappings (id) ON DELETE CASCADE
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
