-- The agents' processes that report as a host, of which one lives unless the host's disk was copied. first_turn: the host's turn when it came; shown_turn: the latest that it was answered; seen: when it reported last.
CREATE TABLE host_agents (
    host TEXT NOT NULL,
    token TEXT NOT NULL,
    boot TEXT NOT NULL,
    machine TEXT NOT NULL,
    address TEXT NOT NULL,
    started INTEGER NOT NULL,
    first_turn INTEGER NOT NULL,
    shown_turn INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    PRIMARY KEY (host, token)
) WITHOUT ROWID;
-- turn grows with each process. twice_until: until when it is proven that several live.
ALTER TABLE services ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
ALTER TABLE services ADD COLUMN twice_until INTEGER NOT NULL DEFAULT 0;
