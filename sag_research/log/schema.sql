-- Version 1 of the log. Rows are only ever added; a redaction empties a body and leaves its digest.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE names (              -- event types, actors and frames, written once
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE runs (               -- the envelope of a run; what it is about is its first event
    run         INTEGER PRIMARY KEY,
    uid         TEXT NOT NULL UNIQUE,
    parent      INTEGER REFERENCES runs CHECK (parent < run),
    fork_pos    INTEGER NOT NULL DEFAULT 0,
    fork_digest BLOB,
    root        INTEGER NOT NULL,
    depth       INTEGER NOT NULL DEFAULT 0,
    label       TEXT NOT NULL DEFAULT '',
    attempt     INTEGER,
    source_id   TEXT,
    created_ns  INTEGER NOT NULL
) STRICT;
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;

CREATE TABLE events (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused, so projections can follow it
    run         INTEGER NOT NULL REFERENCES runs,
    pos         INTEGER NOT NULL,                    -- counts through the ancestors' prefix
    type        INTEGER NOT NULL,
    actor       INTEGER NOT NULL,
    cause       INTEGER CHECK (cause < pos),
    frame       INTEGER,
    ts_ns       INTEGER NOT NULL,
    started     REAL,
    seconds     REAL,
    body        BLOB,                                -- canonical JSON; NULL once redacted
    body_digest BLOB NOT NULL,
    digest      BLOB NOT NULL,                       -- chained over content
    seal        BLOB NOT NULL,                       -- chained over digest and clocks
    UNIQUE (run, pos)
) STRICT;

CREATE TABLE blobs (              -- texts of 512 bytes and more, stored once
    id     INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    size   INTEGER NOT NULL,
    enc    INTEGER NOT NULL,                         -- 0 as it is, 1 zstd
    data   BLOB
) STRICT;

CREATE TABLE calls (              -- index of recorded calls; can be rebuilt from the events
    key    BLOB NOT NULL,
    occ    INTEGER NOT NULL,
    run    INTEGER NOT NULL REFERENCES runs,
    pos    INTEGER NOT NULL,
    root   INTEGER NOT NULL,
    status INTEGER NOT NULL,
    UNIQUE (key, occ, run, pos)
) STRICT;
