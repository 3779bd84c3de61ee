-- The processes that have a database of servers open; a file belongs to one process. beat grows
-- while one lives. knows is how many steps of the schema its program knows: one that does not know
-- a contraction keeps that from being run. Beside one with alone = 1 no other may have it open.
$servers(
CREATE TABLE processes (
    token $text(36) NOT NULL PRIMARY KEY,
    name $text(255) NOT NULL,
    beat BIGINT NOT NULL,
    alone SMALLINT NOT NULL,
    knows INTEGER NOT NULL
) $innodb;
)
