-- Work that one of several processes does. The holder raises beat now and then; one that sees it stand still takes over. token is '' when it is free.
CREATE TABLE leases (
    name VARCHAR(64) NOT NULL PRIMARY KEY,
    token VARCHAR(36) NOT NULL,
    beat BIGINT NOT NULL,
    holder VARCHAR(255) NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
