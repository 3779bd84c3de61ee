-- What the source of a migration last said of the guest that it keeps: there, missing or asked; empty: nothing.
ALTER TABLE migrations ADD COLUMN source_guest $bytes(255) NOT NULL DEFAULT '';
