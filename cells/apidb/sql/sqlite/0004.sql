-- Work that one of several processes does. The holder raises beat now and then; one that sees it stand still takes over. token is '' when it is free.
CREATE TABLE leases (
    name TEXT NOT NULL PRIMARY KEY,
    token TEXT NOT NULL,
    beat INTEGER NOT NULL,
    holder TEXT NOT NULL
) WITHOUT ROWID;
