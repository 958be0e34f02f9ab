-- The entities of some runs, under the decisions about names: in how many of a run's own steps, and
-- in which first.
with wanted as (
    select unnest($runs::varchar[]) as run_id, unnest($numbers::bigint[]) as number
),
renamed as (
    select unnest($old::varchar[]) as entity_id, unnest($new::varchar[]) as canonical
),
taken_over as (
    select run_id, position from steps where inherited
),
seen as (
    select w.number, concat_ws('|', m.kind, m.scope, m.name) as entity_id, m.position, m.step
    from mentions m
    join wanted w on w.run_id = m.run_id
    anti join taken_over t on t.run_id = m.run_id and t.position = m.position
)
select seen.number as run, coalesce(renamed.canonical, seen.entity_id) as entity_id,
       count(distinct seen.position) as n, coalesce(min(seen.step), 0) as first
from seen
left join renamed on renamed.entity_id = seen.entity_id
group by all
order by all
