-- Work that one of several processes does. The holder raises beat now and then; one that sees it stand still takes over. token is '' when it is free.
CREATE TABLE leases (
    name VARCHAR(64) COLLATE "C" NOT NULL PRIMARY KEY,
    token VARCHAR(36) COLLATE "C" NOT NULL,
    beat BIGINT NOT NULL,
    holder VARCHAR(255) COLLATE "C" NOT NULL
);
