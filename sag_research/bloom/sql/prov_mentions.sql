-- Mentions of some steps, one by one, in the order of the text.
with chosen as (
    select unnest($runs::varchar[]) as run_id, unnest($positions::bigint[]) as position
)
select m.run_id, m.position, m.field, m.start, m."end", m.role, m.kind, m.scope, m.name
from mentions m
join chosen c on c.run_id = m.run_id and c.position = m.position
order by m.run_id, m.position, m.field, m.start, m."end", m.kind, m.scope, m.name, m.role
