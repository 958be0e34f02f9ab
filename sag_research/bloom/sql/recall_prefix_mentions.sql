-- The entities that a run has met up to a step, what it took over from its ancestors included.
select m.kind, m.scope, m.name, count(distinct m.position) as n
from steps_all s
join mentions m on m.run_id = s.writer_id and m.position = s.position
where s.run_id = $run and s.step <= $step
group by m.kind, m.scope, m.name
order by m.kind, m.scope, m.name
