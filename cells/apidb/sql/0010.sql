-- Tokens of the URLs of consoles, as the SHA-256 of each, until they expire or their server is deleted.
CREATE TABLE console_tokens (
    hash $text(64) NOT NULL $sqlite(PRIMARY KEY),
    instance_uuid $text(36) NOT NULL,
    expires_at $time NOT NULL,
    $servers(PRIMARY KEY (hash)),
    $mysql(KEY console_tokens_instance (instance_uuid)),
    $mysql(KEY console_tokens_expiry (expires_at)),
) $sqlite(WITHOUT ROWID) $innodb;
$notmysql(CREATE INDEX console_tokens_instance ON console_tokens (instance_uuid));
$notmysql(CREATE INDEX console_tokens_expiry ON console_tokens (expires_at));
