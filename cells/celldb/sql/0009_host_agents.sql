-- The agents' processes that report as a host, of which one lives unless the host's disk was copied. first_turn: the host's turn when it came; shown_turn: the latest that it was answered; seen: when it reported last.
CREATE TABLE host_agents (
    host $bytes(255) NOT NULL,
    token $bytes(64) NOT NULL,
    boot $bytes(64) NOT NULL,
    machine $bytes(64) NOT NULL,
    address $bytes(255) NOT NULL,
    started $time NOT NULL,
    first_turn $int NOT NULL,
    shown_turn $int NOT NULL,
    seen $time NOT NULL,
    PRIMARY KEY (host, token)
) $sqlite(WITHOUT ROWID);
-- turn grows with each process. twice_until: until when it is proven that several live.
ALTER TABLE services ADD COLUMN turn $int NOT NULL DEFAULT 0;
ALTER TABLE services ADD COLUMN twice_until $time NOT NULL DEFAULT 0;
