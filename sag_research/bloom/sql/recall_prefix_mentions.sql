-- The entities that a run has met up to a step, what it took over from its ancestors included, under
-- the decisions about names.
with renamed as (
    select unnest($old::varchar[]) as entity_id, unnest($new::varchar[]) as canonical
),
seen as (
    select concat_ws('|', m.kind, m.scope, m.name) as entity_id, m.position
    from steps_all s
    join mentions m on m.run_id = s.writer_id and m.position = s.position
    where s.run_id = $run and s.step <= $step
)
select coalesce(renamed.canonical, seen.entity_id) as entity_id,
       count(distinct seen.position) as n
from seen
left join renamed on renamed.entity_id = seen.entity_id
group by all
order by all
