-- Which runs of agents have renewed the certificate of a host, in JSON, to find two machines with one identity. '' if none said so.
ALTER TABLE enrolments ADD COLUMN agents $text(8192) NOT NULL DEFAULT '';
