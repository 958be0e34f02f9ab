-- Runs that the log says something new about: their own events, and facts recorded on @workspace;
-- and whether something was decided about names.
select case when run_id = $workspace then body ->> '$.run' else run_id end as run_id,
       bool_or(run_id = $workspace and type in ('entity.merged', 'entity.split')) as decided
from events
where seq > $after
group by all
order by all
