// Constraints and indexes for Neo4j 5 or later; run once after the import. Safe to run again.
CREATE CONSTRAINT sag_run IF NOT EXISTS FOR (r:Run) REQUIRE r.run_id IS UNIQUE;
CREATE CONSTRAINT sag_event IF NOT EXISTS FOR (e:Event) REQUIRE e.event_id IS UNIQUE;
CREATE CONSTRAINT sag_entity IF NOT EXISTS FOR (x:Entity) REQUIRE x.entity_id IS UNIQUE;
CREATE INDEX sag_run_task IF NOT EXISTS FOR (r:Run) ON (r.task_id);
CREATE INDEX sag_run_outcome IF NOT EXISTS FOR (r:Run) ON (r.outcome);
CREATE INDEX sag_event_place IF NOT EXISTS FOR (e:Event) ON (e.run_id, e.step);
CREATE INDEX sag_entity_name IF NOT EXISTS FOR (x:Entity) ON (x.name);
CREATE INDEX sag_entity_kind IF NOT EXISTS FOR (x:Entity) ON (x.kind);
