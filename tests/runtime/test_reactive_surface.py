"""The public names of the log and the runtime, used together as the documentation shows them.

>>> import tempfile
>>> from sag_research.log import SQLiteEventStore
>>> from sag_research.model import Event, Run
>>> from sag_research.extract import EntityExtractor
>>> from sag_research.runtime import ReactiveRuntime

>>> folder = tempfile.TemporaryDirectory()
>>> store = SQLiteEventStore(f"{folder.name}/log.sqlite")
>>> runtime = ReactiveRuntime(store=store, projection=None)
>>> _ = store.create_run(Run(run_id="r1", goal="mend the parser"))
>>> _ = store.append(Event(run_id="r1", type="agent.step", payload={"action": "ls"}))
>>> many = [Event(run_id="r1", type="note.taken", payload={"n": n}) for n in range(10)]
>>> [event.position for event in store.append_many(many)][-1]
12
>>> fork = store.fork("r1", at=12, run_id="r2", intervention={"prompt": "think twice"})
>>> fork.run_id, fork.parent_id, fork.fork_position
('r2', 'r1', 12)

>>> @runtime.behavior(on_events=["database.error"])
... def diagnose(rt, event):
...     entities, relations = extractor.extract(event.payload["text"])
...     rt.emit("diagnosis.made", {"entities": [entity.entity_id for entity in entities]})
>>> extractor = EntityExtractor(api_key=None)
>>> with runtime.active_run("r2"):
...     _ = runtime.emit("database.error", {"text": "cannot reach postgresql at port 5432"})
>>> runtime.dispatch_loop()
DispatchReport(2 events, 1 behaviours run, 0 failed, stopped: idle)
>>> last = list(store.read("r2"))[-1]
>>> last.position, last.type, last.actor, last.cause
(15, 'diagnosis.made', 'diagnose', 14)
>>> last.payload
{'entities': ['System||Postgres', 'Configuration||Port 5432']}
>>> store.head("r1").position, store.verify().ok
(12, True)
>>> store.close()
>>> folder.cleanup()
"""
