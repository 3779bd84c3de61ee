-- Key pairs belong to users. Servers have copies: a key pair that is deleted stays in those that were made with it.
CREATE TABLE key_pairs (
    id BIGSERIAL NOT NULL,
    user_id VARCHAR(255) COLLATE "C" NOT NULL,
    name VARCHAR(255) COLLATE "C" NOT NULL,
    type VARCHAR(16) COLLATE "C" NOT NULL,
    fingerprint VARCHAR(255) COLLATE "C" NOT NULL,
    public_key TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT key_pairs_name UNIQUE (user_id, name)
);
