-- Key pairs belong to users. Servers have copies: a key pair that is deleted stays in those that were made with it.
CREATE TABLE key_pairs (
    id BIGINT NOT NULL AUTO_INCREMENT,
    user_id VARCHAR(255) NOT NULL,
    name VARCHAR(255) NOT NULL,
    type VARCHAR(16) NOT NULL,
    fingerprint VARCHAR(255) NOT NULL,
    public_key MEDIUMTEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT key_pairs_name UNIQUE (user_id, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
