-- Runs that the log says something new about: their own events, and facts recorded on @workspace.
select distinct case when run_id = $workspace then body ->> '$.run' else run_id end as run_id
from events
where seq > $after
