-- Entities with the number of runs in the whole workspace that name them.
with wanted as (
    select unnest($entities::varchar[]) as entity_id
),
spread as (
    select m.entity_id, count(distinct m.run_id) as runs_total
    from mentions m
    join wanted on wanted.entity_id = m.entity_id
    group by m.entity_id
)
select e.entity_id, e.kind, e.scope, e.name, coalesce(spread.runs_total, 0) as runs_total
from entities e
join wanted on wanted.entity_id = e.entity_id
left join spread on spread.entity_id = e.entity_id
order by e.entity_id
