-- The stable views. They stand on base_* views (Parquet segments plus the log's tail in memory),
-- on lineage (one row for each ancestor whose prefix a fork inherits), and on nothing else.

CREATE OR REPLACE VIEW events AS
SELECT run_id, position, seq, type, actor, ts, cause, body, frame, lower(hex(digest)) AS digest
FROM base_events;

CREATE OR REPLACE VIEW steps AS
SELECT run_id, step, position, thought, action, observation, n_calls, tool, exit_code, seconds,
       tokens_in, tokens_out, cost_usd, started_at, inherited, flags, seq
FROM base_steps;

CREATE OR REPLACE VIEW steps_all AS
SELECT *, run_id AS writer_id FROM steps
UNION ALL
SELECT l.run_id, s.step, s.position, s.thought, s.action, s.observation, s.n_calls, s.tool,
       s.exit_code, s.seconds, s.tokens_in, s.tokens_out, s.cost_usd, s.started_at,
       true AS inherited, s.flags, s.seq, s.run_id AS writer_id
FROM lineage l JOIN steps s ON s.run_id = l.writer_id AND s.position BETWEEN l.lo AND l.hi;

CREATE OR REPLACE VIEW calls AS
SELECT run_id, step, call, id, name, arguments, observation, status, exit_code, text, position
FROM base_calls
UNION ALL
SELECT run_id, step, 0, call_id, tool, call_arguments, observation, call_status, exit_code, action,
       position
FROM base_steps WHERE one_call;

-- The last word of each source on each run; earlier ones stay in events.
CREATE OR REPLACE VIEW outcomes AS
SELECT subject AS run_id, outcome, detail, score, source, known_at_step, position
FROM base_outcome_rows
QUALIFY row_number() OVER (PARTITION BY subject, source ORDER BY seq DESC) = 1;

CREATE OR REPLACE VIEW sources AS
SELECT source_id, path, digest, bytes, format, format_version, status, reason, n_runs, n_steps,
       root, position
FROM base_source_rows
QUALIFY row_number() OVER (PARTITION BY root, path, source_id ORDER BY seq DESC) = 1;

CREATE OR REPLACE VIEW mentions AS
SELECT run_id, position, step, field, start, "end", concat_ws('|', kind, scope, name) AS entity_id,
       role, rule, version, kind, scope, name
FROM base_mentions;

-- A relation may name an entity without a mention of its own: the file of a test's node id.
CREATE OR REPLACE VIEW entities AS
SELECT DISTINCT concat_ws('|', kind, scope, name) AS entity_id, kind, scope, name
FROM (SELECT kind, scope, name FROM base_mentions
      UNION ALL SELECT source_kind, source_scope, source_name FROM base_relations
      UNION ALL SELECT target_kind, target_scope, target_name FROM base_relations);

CREATE OR REPLACE VIEW relations AS
SELECT concat_ws('|', source_kind, source_scope, source_name) AS source_id, type,
       concat_ws('|', target_kind, target_scope, target_name) AS target_id,
       run_id, position, rule, step, version
FROM base_relations;

-- The last word on each run that was ever hidden or shown.
CREATE OR REPLACE VIEW visibility AS
SELECT body ->> '$.run' AS run_id, type = 'run.hidden' AS hidden, body ->> '$.reason' AS reason,
       CASE WHEN type = 'run.hidden' THEN body ->> '$.copy_of' END AS copy_of
FROM base_events WHERE run_id = '@workspace' AND type IN ('run.hidden', 'run.shown')
QUALIFY row_number() OVER (PARTITION BY body ->> '$.run' ORDER BY seq DESC) = 1;

CREATE OR REPLACE VIEW runs AS
WITH step_sums AS (
    SELECT run_id, count(*) AS n_steps,
           -- a sum with an unknown part is unknown
           CASE WHEN count(tokens_in) = count(*) THEN sum(tokens_in)::BIGINT END AS tokens_in,
           CASE WHEN count(tokens_out) = count(*) THEN sum(tokens_out)::BIGINT END AS tokens_out,
           CASE WHEN count(cost_usd) = count(*) THEN fsum(cost_usd) END AS cost_usd,
           min(started_at) AS started_at, max(started_at) AS last_started
    FROM base_steps WHERE NOT inherited GROUP BY run_id
),
ends AS (
    -- of the last end, also where it says nothing: max_by would skip to one that does
    SELECT run_id, arg_max_null(exit_status, seq) AS exit_status, max_by(type, seq) AS end_type,
           arg_max_null(ts, seq) AS ended_at, arg_max_null(tokens_in, seq) AS tokens_in,
           arg_max_null(tokens_out, seq) AS tokens_out, arg_max_null(cost_usd, seq) AS cost_usd
    FROM base_end_rows GROUP BY run_id
),
heads AS (
    SELECT run_id, max_by(digest, position) AS digest FROM base_events GROUP BY run_id
),
verdicts AS (
    SELECT run_id,
           count(DISTINCT outcome) FILTER (outcome IN ('success', 'failure')) AS n_known,
           min(outcome) FILTER (outcome IN ('success', 'failure')) AS outcome,
           arg_max_null(detail, position) FILTER (outcome IN ('success', 'failure')) AS detail,
           arg_max_null(score, position) FILTER (outcome IN ('success', 'failure')) AS score,
           arg_max_null(detail, position) FILTER (outcome = 'unknown') AS unknown_detail
    FROM outcomes GROUP BY run_id
),
inherited AS (
    SELECT l.run_id, count(*) AS n
    FROM lineage l JOIN base_steps s ON s.run_id = l.writer_id AND s.position BETWEEN l.lo AND l.hi
    GROUP BY l.run_id
)
SELECT r.run_id, r.kind, r.task_id,
       row_number() OVER (
           PARTITION BY r.task_id, r.agent, r.model
           ORDER BY coalesce(d.hidden, false), r.attempt NULLS LAST, r.seq
       ) AS attempt,
       r.dataset, r.repo, r.agent, r.model, r.goal, r.source_id, e.exit_status,
       CASE WHEN v.n_known = 1 THEN v.outcome ELSE 'unknown' END AS outcome,
       CASE v.n_known WHEN 1 THEN v.detail WHEN 0 THEN v.unknown_detail
                      ELSE CASE WHEN v.n_known > 1 THEN 'conflict' END END AS detail,
       CASE WHEN v.n_known = 1 THEN v.score END AS score,
       coalesce(s.n_steps, 0) AS n_steps,
       coalesce(e.tokens_in, s.tokens_in) AS tokens_in,
       coalesce(e.tokens_out, s.tokens_out) AS tokens_out,
       coalesce(e.cost_usd, s.cost_usd) AS cost_usd,
       -- clocks of the log say when a run was ingested, not when it ran
       coalesce(s.started_at, CASE WHEN r.source_id IS NULL THEN r.created_at END) AS started_at,
       CASE WHEN r.source_id IS NULL THEN e.ended_at ELSE s.last_started END AS ended_at,
       r.parent_id, r.fork_position, lower(hex(h.digest)) AS digest, e.end_type,
       coalesce(i.n, 0) AS n_inherited, r.label, r.created_at, r.seq,
       coalesce(d.hidden, false) AS hidden, d.copy_of,
       CASE WHEN d.hidden THEN d.reason END AS hidden_reason
FROM base_run_rows r
     LEFT JOIN step_sums s USING (run_id) LEFT JOIN ends e USING (run_id)
     LEFT JOIN heads h USING (run_id) LEFT JOIN verdicts v USING (run_id)
     LEFT JOIN inherited i USING (run_id) LEFT JOIN visibility d USING (run_id)
WHERE r.run_id <> '@workspace';

-- Wilson's score interval for k of n at 95 % (E. B. Wilson, 1927); NULL without observations.
CREATE OR REPLACE MACRO wilson_low(k, n) AS CASE WHEN n > 0 THEN greatest(0.0,
    (k / n + 1.9207294103470 / n
     - 1.9599639845401 * sqrt(k / n * (1 - k / n) / n + 0.9603647051735 / (n * n)))
    / (1 + 3.8414588206940 / n)) END;

CREATE OR REPLACE MACRO wilson_high(k, n) AS CASE WHEN n > 0 THEN least(1.0,
    (k / n + 1.9207294103470 / n
     + 1.9599639845401 * sqrt(k / n * (1 - k / n) / n + 0.9603647051735 / (n * n)))
    / (1 + 3.8414588206940 / n)) END;
