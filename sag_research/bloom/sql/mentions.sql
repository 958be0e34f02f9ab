-- Mentions of the chosen events, counted per entity and role.
with chosen as (
    select unnest($runs::varchar[]) as run_id, unnest($positions::bigint[]) as position
)
select m.run_id, m.position, m.entity_id, m.role, count(*) as n, min(m.rule) as rule
from mentions m
join chosen c on c.run_id = m.run_id and c.position = m.position
group by m.run_id, m.position, m.entity_id, m.role
order by m.run_id, m.position, m.entity_id, m.role
