-- Entities with the number of runs in the whole workspace that name them. Hidden runs, such as
-- copies, and steps that a run took over from another one are no support.
with wanted as (
    select unnest($entities::varchar[]) as entity_id
),
spread as (
    select m.entity_id, count(distinct m.run_id) as runs_total
    from mentions m
    join wanted on wanted.entity_id = m.entity_id
    join runs r on r.run_id = m.run_id and not r.hidden
    left join steps s on s.run_id = m.run_id and s.position = m.position
    where not coalesce(s.inherited, false)
    group by m.entity_id
)
select e.entity_id, e.kind, e.scope, e.name, coalesce(spread.runs_total, 0) as runs_total
from entities e
join wanted on wanted.entity_id = e.entity_id
left join spread on spread.entity_id = e.entity_id
order by e.entity_id
