// For embedded databases with a schema (Kuzu and what came of it), run in this folder.
CREATE NODE TABLE Run(run_id STRING, seq INT64, kind STRING, task_id STRING, attempt INT64,
  dataset STRING, repo STRING, agent STRING, model STRING, label STRING, exit_status STRING,
  outcome STRING, detail STRING, score DOUBLE, known_at_step INT64, n_steps INT64,
  tokens_in INT64, tokens_out INT64, cost_usd DOUBLE, started_at TIMESTAMP, ended_at TIMESTAMP,
  parent_id STRING, fork_position INT64, digest STRING, goal STRING, hidden BOOLEAN,
  counted BOOLEAN, PRIMARY KEY(run_id));
CREATE NODE TABLE Event(event_id STRING, run_id STRING, position INT64, type STRING, actor STRING,
  step INT64, tool STRING, exit_code INT64, seconds DOUBLE, tokens_in INT64, tokens_out INT64,
  cost_usd DOUBLE, started_at TIMESTAMP, inherited BOOLEAN, thought STRING, action STRING,
  observation STRING, body STRING, PRIMARY KEY(event_id));
CREATE NODE TABLE Entity(entity_id STRING, kind STRING, scope STRING, name STRING,
  PRIMARY KEY(entity_id));
CREATE REL TABLE CONTAINS(FROM Run TO Event);
CREATE REL TABLE NEXT(FROM Event TO Event);
CREATE REL TABLE CAUSED_BY(FROM Event TO Event);
CREATE REL TABLE FORKED_FROM(FROM Run TO Event);
CREATE REL TABLE PROCESSED(FROM Event TO Entity, n INT64, rule STRING);
CREATE REL TABLE MUTATED(FROM Event TO Entity, n INT64, rule STRING);
CREATE REL TABLE RELATES(FROM Entity TO Entity, type STRING, n INT64, n_runs INT64,
  first_run STRING, first_position INT64, rule STRING);
COPY Run FROM (
  LOAD WITH HEADERS (run_id STRING, seq INT64, kind STRING, task_id STRING, attempt INT64,
    dataset STRING, repo STRING, agent STRING, model STRING, label STRING, exit_status STRING,
    outcome STRING, detail STRING, score DOUBLE, known_at_step INT64, n_steps INT64,
    tokens_in INT64, tokens_out INT64, cost_usd DOUBLE, started_at TIMESTAMP, ended_at TIMESTAMP,
    parent_id STRING, fork_position INT64, digest STRING, goal STRING, hidden BOOLEAN,
    counted BOOLEAN, node_label STRING)
  FROM 'nodes_run.csv' (HEADER=true, PARALLEL=false, ESCAPE='"')
  RETURN run_id, seq, kind, task_id, attempt, dataset, repo, agent, model, label, exit_status,
    outcome, detail, score, known_at_step, n_steps, tokens_in, tokens_out, cost_usd, started_at,
    ended_at, parent_id, fork_position, digest, goal, hidden, counted
);
COPY Event FROM (
  LOAD WITH HEADERS (event_id STRING, run_id STRING, position INT64, type STRING, actor STRING,
    step INT64, tool STRING, exit_code INT64, seconds DOUBLE, tokens_in INT64, tokens_out INT64,
    cost_usd DOUBLE, started_at TIMESTAMP, inherited BOOLEAN, thought STRING, action STRING,
    observation STRING, body STRING, node_label STRING)
  FROM 'nodes_event.csv' (HEADER=true, PARALLEL=false, ESCAPE='"')
  RETURN event_id, run_id, position, type, actor, step, tool, exit_code, seconds, tokens_in,
    tokens_out, cost_usd, started_at, inherited, thought, action, observation, body
);
COPY Entity FROM (
  LOAD WITH HEADERS (entity_id STRING, kind STRING, scope STRING, name STRING, node_label STRING)
  FROM 'nodes_entity.csv' (HEADER=true, PARALLEL=false, ESCAPE='"')
  RETURN entity_id, kind, scope, name
);
COPY CONTAINS FROM (
  LOAD WITH HEADERS (source STRING, target STRING, type STRING)
  FROM 'contains.csv' (HEADER=true, PARALLEL=false, ESCAPE='"')
  RETURN source, target
);
COPY NEXT FROM (
  LOAD WITH HEADERS (source STRING, target STRING, type STRING)
  FROM 'next.csv' (HEADER=true, PARALLEL=false, ESCAPE='"')
  RETURN source, target
);
COPY CAUSED_BY FROM (
  LOAD WITH HEADERS (source STRING, target STRING, type STRING)
  FROM 'caused_by.csv' (HEADER=true, PARALLEL=false, ESCAPE='"')
  RETURN source, target
);
COPY FORKED_FROM FROM (
  LOAD WITH HEADERS (source STRING, target STRING, type STRING)
  FROM 'forked_from.csv' (HEADER=true, PARALLEL=false, ESCAPE='"')
  RETURN source, target
);
COPY PROCESSED FROM (
  LOAD WITH HEADERS (source STRING, target STRING, n INT64, rule STRING, type STRING)
  FROM 'mentions.csv' (HEADER=true, PARALLEL=false, ESCAPE='"') WHERE type = 'PROCESSED'
  RETURN source, target, n, rule
);
COPY MUTATED FROM (
  LOAD WITH HEADERS (source STRING, target STRING, n INT64, rule STRING, type STRING)
  FROM 'mentions.csv' (HEADER=true, PARALLEL=false, ESCAPE='"') WHERE type = 'MUTATED'
  RETURN source, target, n, rule
);
COPY RELATES FROM (
  LOAD WITH HEADERS (source STRING, target STRING, n INT64, n_runs INT64, first_run STRING,
    first_position INT64, rule STRING, type STRING)
  FROM 'relations.csv' (HEADER=true, PARALLEL=false, ESCAPE='"')
  RETURN source, target, type, n, n_runs, first_run, first_position, rule
);
