-- What was decided about names, in order.
select position, type, body
from events
where run_id = $workspace and type in ('entity.merged', 'entity.split')
order by position
