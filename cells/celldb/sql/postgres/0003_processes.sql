-- The processes that have the database open. beat grows while one lives. knows is how many steps of the schema its program knows: one that does not know
-- a contraction keeps that from being run. Beside one with alone = 1 no other may have it open.
CREATE TABLE processes (
    token VARCHAR(36) COLLATE "C" NOT NULL PRIMARY KEY,
    name VARCHAR(255) COLLATE "C" NOT NULL,
    beat BIGINT NOT NULL,
    alone SMALLINT NOT NULL,
    knows INTEGER NOT NULL
);
