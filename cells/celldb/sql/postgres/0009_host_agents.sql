-- The agents' processes that report as a host, of which one lives unless the host's disk was copied. first_turn: the host's turn when it came; shown_turn: the latest that it was answered; seen: when it reported last.
CREATE TABLE host_agents (
    host TEXT COLLATE "C" NOT NULL,
    token TEXT COLLATE "C" NOT NULL,
    boot TEXT COLLATE "C" NOT NULL,
    machine TEXT COLLATE "C" NOT NULL,
    address TEXT COLLATE "C" NOT NULL,
    started BIGINT NOT NULL,
    first_turn BIGINT NOT NULL,
    shown_turn BIGINT NOT NULL,
    seen BIGINT NOT NULL,
    PRIMARY KEY (host, token)
);
-- turn grows with each process. twice_until: until when it is proven that several live.
ALTER TABLE services ADD COLUMN turn BIGINT NOT NULL DEFAULT 0;
ALTER TABLE services ADD COLUMN twice_until BIGINT NOT NULL DEFAULT 0;
