-- What the virt driver of a node can do with guests beyond the basics, with commas in between; its host reports it.
ALTER TABLE compute_nodes ADD COLUMN abilities $bytes(4096) NOT NULL DEFAULT '';
