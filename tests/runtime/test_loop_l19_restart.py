"""How a plan goes on in another process: it is run again from the top, and asks what is done.

A plan is not stored. What its stages did is: each stage's graph first looks into the log and runs
only what is missing. So the second process runs the same plan with the same run of the log.

>>> import tempfile
>>> from sag_research.log import SQLiteEventStore
>>> from sag_research.model import Event, Run
>>> from sag_research.runtime import NodeResult, Runtime, graph, graph_step, plan

What the plan works on: a shop that keeps a receipt for each key, so that an order that is sent
twice is carried out once; a desk that delivers each letter once; and a permission that may be
withdrawn at any time.

>>> receipts, letters, orders_sent = {}, {}, []
>>> permitted = {"buyer"}
>>> def order(request):
...     orders_sent.append(request["key"])
...     return receipts.setdefault(request["key"], {"item": request["item"], "cents": 350})

The nodes. Each does one thing, and what was done is read from the log, not from memory.

>>> def recall(stage):
...     found = [e for e in store.read("r1", types=("stage.done",)) if e.payload["stage"] == stage]
...     if not found:
...         return NodeResult.failed("NOT_DONE")
...     return found[-1].payload["result"]
>>> def remember(done):
...     _ = store.append(Event(run_id="r1", type="stage.done", payload=done))
...     return done["result"]
>>> def allow(who):
...     return NodeResult.success(who) if who in permitted else NodeResult.failed("FORBIDDEN", who)
>>> def make_context(item):
...     return {"item": item, "key": f"order-{item}"}
>>> def reconcile(request):
...     return receipts.get(request["key"])
>>> def deliver(letter):
...     return letters.setdefault(letter["id"], letter["text"])

>>> one = {work.__name__: graph(work.__name__).node("n", work)
...        for work in (recall, remember, allow, make_context, reconcile, order, deliver)}
>>> def ask(name, value):
...     return (yield from graph_step(one[name], value))["n"]

The plan. The permission is checked each time, the context is built each time, the order is
reconciled with the shop before it is sent, and the letter has an id.

>>> @plan(id="purchase", max_iterations=12)
... def purchase(item):
...     (yield from ask("allow", "buyer")).unwrap()
...     request = (yield from ask("make_context", item)).unwrap()
...     receipt = yield from ask("recall", "ordered")
...     if receipt.code == "NOT_DONE":
...         receipt = yield from ask("reconcile", request)
...         if receipt.unwrap() is None:
...             receipt = yield from ask("order", request)
...         yield from ask("remember", {"stage": "ordered", "result": receipt.unwrap()})
...     text = f"{receipt.unwrap()['item']}: {receipt.unwrap()['cents']}"
...     yield from ask("deliver", {"id": f"letter-{item}", "text": text})
...     return text

A process that dies after the effect and before it could write that down:

>>> class Killed(BaseException):
...     "Stands for the end of a process."
>>> def die_before(graph_id):
...     def observe(event):
...         if (event.graph_id, event.status) == (graph_id, "started"):
...             raise Killed
...     return observe
>>> folder = tempfile.TemporaryDirectory()
>>> def process(**options):
...     "Run the plan as a process of its own would: new store, new runtime, same run of the log."
...     global store
...     with SQLiteEventStore(f"{folder.name}/log.sqlite") as store, Runtime(store=store) as rt:
...         if not store.has_run("r1"):
...             _ = store.create_run(Run(run_id="r1", goal="buy a lamp"))
...         try:
...             return rt.loop(purchase, "lamp", run_id="r1", **options)
...         except Killed:
...             return "killed"

>>> process(on_graph=die_before("remember"))
'killed'
>>> receipts
{'order-lamp': {'item': 'lamp', 'cents': 350}}

The second process finds the receipt and does not order again; it dies before the letter.

>>> process(on_graph=die_before("deliver"))
'killed'
>>> letters, orders_sent
({}, ['order-lamp'])

Without the permission nothing goes on, although a stage is done:

>>> permitted.clear()
>>> process()
Traceback (most recent call last):
sag_research.runtime._loop_errors.NodeFailedError: the node failed with 'FORBIDDEN' (buyer)
>>> permitted.add("buyer")

The next one finishes, and one that is run after that changes nothing.

>>> process(), process()
('lamp: 350', 'lamp: 350')
>>> orders_sent, letters
(['order-lamp'], {'letter-lamp': 'lamp: 350'})

All of it is in the log: what each process began, and where it ended.

>>> with SQLiteEventStore(f"{folder.name}/log.sqlite") as store:
...     seen = [(e.type, e.payload.get("graph")) for e in store.read("r1")]
>>> seen.count(("graph.started", "order")), seen.count(("graph.failed", "deliver"))
(1, 1)
>>> seen[-2:]
[('graph.started', 'deliver'), ('graph.completed', 'deliver')]
>>> folder.cleanup()
"""
