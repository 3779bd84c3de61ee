-- The agents' processes that report as a host, of which one lives unless the host's disk was copied. first_turn: the host's turn when it came; shown_turn: the latest that it was answered; seen: when it reported last.
CREATE TABLE host_agents (
    host VARBINARY(255) NOT NULL,
    token VARBINARY(64) NOT NULL,
    boot VARBINARY(64) NOT NULL,
    machine VARBINARY(64) NOT NULL,
    address VARBINARY(255) NOT NULL,
    started BIGINT NOT NULL,
    first_turn BIGINT NOT NULL,
    shown_turn BIGINT NOT NULL,
    seen BIGINT NOT NULL,
    PRIMARY KEY (host, token)
);
-- turn grows with each process. twice_until: until when it is proven that several live.
ALTER TABLE services ADD COLUMN turn BIGINT NOT NULL DEFAULT 0;
ALTER TABLE services ADD COLUMN twice_until BIGINT NOT NULL DEFAULT 0;
