-- Key pairs belong to users. Servers have copies: a key pair that is deleted stays in those that were made with it.
CREATE TABLE key_pairs (
    id $rowid $sqlite(AUTOINCREMENT),
    user_id $text(255) NOT NULL,
    name $text(255) NOT NULL,
    type $text(16) NOT NULL,
    fingerprint $text(255) NOT NULL,
    public_key $sqlite(TEXT) $mysql(MEDIUMTEXT) $postgres(TEXT COLLATE "C") NOT NULL,
    created_at $time NOT NULL,
    $sqlite(UNIQUE (user_id, name)),
    $servers(PRIMARY KEY (id)),
    $servers(CONSTRAINT key_pairs_name UNIQUE (user_id, name)),
) $innodb;
