-- The key pair that a server was made with: its name, and the public key that the guest has. key_data is NULL without one.
ALTER TABLE instances ADD COLUMN key_name $bytes(255) NOT NULL DEFAULT '';
ALTER TABLE instances ADD COLUMN key_data $longtext;
