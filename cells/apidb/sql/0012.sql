-- From which address a certificate was renewed last, and the last use of a key that was not the host's any more: when, from where, which. Times are 0 and texts ''
-- if there was none.
ALTER TABLE enrolments ADD COLUMN renewed_from $text(255) NOT NULL DEFAULT '';
ALTER TABLE enrolments ADD COLUMN conflict_at $time NOT NULL DEFAULT 0;
ALTER TABLE enrolments ADD COLUMN conflict_from $text(255) NOT NULL DEFAULT '';
ALTER TABLE enrolments ADD COLUMN conflict_key $text(64) NOT NULL DEFAULT '';
