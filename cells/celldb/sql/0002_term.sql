-- The highest term of a compute API that changed something here: changes of lower ones are refused.
ALTER TABLE cell ADD COLUMN term $int NOT NULL DEFAULT 0;
