-- Work that one of several processes does. The holder raises beat now and then; one that sees it stand still takes over. token is '' when it is free.
CREATE TABLE leases (
    name $text(64) NOT NULL PRIMARY KEY,
    token $text(36) NOT NULL,
    beat $int NOT NULL,
    holder $text(255) NOT NULL
) $sqlite(WITHOUT ROWID) $innodb;
