-- Hosts that may have a certificate: invited by a token, enrolled with a key, evicted. Times are 0 and texts '' before they are known.
CREATE TABLE enrolments (
    host VARCHAR(255) NOT NULL,
    cell_uuid VARCHAR(36) NOT NULL,
    state VARCHAR(16) NOT NULL,
    created_by VARCHAR(255) NOT NULL,
    created_at BIGINT NOT NULL,
    invited_until BIGINT NOT NULL,
    token_id VARCHAR(64) NOT NULL,
    token_salt VARCHAR(64) NOT NULL,
    token_digest VARCHAR(64) NOT NULL,
    key_digest VARCHAR(64) NOT NULL,
    next_key_digest VARCHAR(64) NOT NULL,
    enrolled_at BIGINT NOT NULL,
    enrolled_from VARCHAR(255) NOT NULL,
    serial VARCHAR(64) NOT NULL,
    issued_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    denied_before BIGINT NOT NULL,
    evicted_at BIGINT NOT NULL,
    reason VARCHAR(1000) NOT NULL,
    PRIMARY KEY (host),
    KEY enrolments_token (token_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
-- The compute nodes of the certificates of these hosts. A node is of one host.
CREATE TABLE enrolled_nodes (
    uuid VARCHAR(36) NOT NULL,
    host VARCHAR(255) NOT NULL,
    name VARCHAR(255) NOT NULL,
    PRIMARY KEY (uuid),
    KEY enrolled_nodes_host (host)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
