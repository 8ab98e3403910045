// Planning without a job: what is asked for is in the address, so a plan can be sent to somebody, who gets it by asking again.
import { useEffect, useRef, useState } from 'preact/hooks';
import { plan as callPlan } from '../api';
import { getCatalog, getCluster, type Catalog } from '../catalog';
import { download } from '../download';
import * as format from '../format';
import { navigate } from '../navigation';
import {
  clusterName, planAddress, planRequest, rankedSoFar, sameQuestion, simulatedText, type ConfigFile, type PlanForm,
} from '../plan_form';
import { Card, Empty, Failure, Meter, useTitle } from '../parts/basic';
import { PlanBars } from '../parts/plan_bars';
import { PlanCompare } from '../parts/plan_compare';
import { PlanFormFields } from '../parts/plan_form';
import { Explanation, LeftOut, Ranking } from '../parts/ranking';
import { Scatter } from '../parts/scatter';
import { SubmitDialog } from '../parts/submit';
import { baseOfPlan, devicesOf, draftOfRecipe } from '../submission';
import type { PlanningProgress, PlanResult, RankedRecipe } from '../types';
import { projectPlace, type PlanView } from '../url';

const BUDGET_SECONDS = 20;

interface Asked {
  form: PlanForm;
  config: ConfigFile | null;
}

// The plan that was asked for last. Asking anew, or leaving the page, ends the one before on the server too.
function usePlan() {
  const [asked, setAsked] = useState<Asked | null>(null);
  const [progress, setProgress] = useState<PlanningProgress | null>(null);
  const [result, setResult] = useState<PlanResult | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  const ask = async (form: PlanForm, config: ConfigFile | null) => {
    running.current?.abort();
    const control = new AbortController();
    running.current = control;
    setAsked({ form, config });
    setProgress(null);
    setResult(null);
    setError(null);
    setBusy(true);
    try {
      const cluster = await getCluster(clusterName(form));
      const got = await callPlan(
        planRequest(form, config, cluster, BUDGET_SECONDS), (at) => control.signal.aborted || setProgress(at), control.signal);
      if (!control.signal.aborted) setResult(got);
    } catch (caught) {
      if (!control.signal.aborted) setError(caught);
    } finally {
      if (running.current === control) setBusy(false);
    }
  };
  const stop = () => {
    running.current?.abort();
    setBusy(false);
  };
  return { asked, progress, result, error, busy, ask, stop };
}

export function PlanPage({ view }: { view: PlanView }) {
  useTitle('Plan');
  const [catalog, setCatalog] = useState<Catalog | null>(null);
  const [catalogError, setCatalogError] = useState<unknown>(null);
  const [config, setConfig] = useState<ConfigFile | null>(null);
  const [form, setForm] = useState(view.form);
  const [submitting, setSubmitting] = useState<RankedRecipe | null>(null);
  const planning = usePlan();
  const place = projectPlace(view.project, 'plan');
  useEffect(() => { getCatalog().then(setCatalog, setCatalogError); }, []);
  // An address that somebody has sent, or gone back to, is asked for; one that this page has just written is already.
  useEffect(() => {
    if (!view.asked || (planning.asked && sameQuestion(planning.asked.form, view.form))) return;
    setForm(view.form);
    planning.ask(view.form, view.form.model ? null : config);
  }, [planAddress(view.form), view.asked]);
  const submit = () => {
    const next = { ...form, model: config === null ? form.model : '', a: 1, b: 2 };
    planning.ask(next, config);
    navigate(planAddress(next, place));
  };
  const pick = (a: number, b: number) => navigate(planAddress({ ...view.form, a, b }, place), true);
  const { result } = planning;
  return (
    <main id="main">
      <div class="page-head"><h1>Plan</h1>
        <p class="sub head-note">Which way to train is fastest and fits: simulated, no device is needed.</p></div>
      {catalogError !== null && <Failure error={catalogError} />}
      <PlanFormFields form={form} change={setForm} config={config} setConfig={setConfig} catalog={catalog} busy={planning.busy}
        submit={submit} stop={planning.stop} />
      {planning.error !== null && <Failure error={planning.error} />}
      {planning.busy && <Progress progress={planning.progress} />}
      {planning.busy && planning.asked !== null && <SoFar asked={planning.asked} progress={planning.progress} />}
      {result === null && !planning.busy && planning.error === null && (
        <Empty title="Nothing is planned yet">Choose a model and a cluster, then press Plan.</Empty>
      )}
      {result !== null && <Result plan={result} view={view} pick={pick} submit={setSubmitting} />}
      {result !== null && submitting !== null && planning.asked !== null && (
        <Submit plan={result} asked={planning.asked} ranked={submitting} close={() => setSubmitting(null)} />
      )}
    </main>
  );
}

function Progress({ progress }: { progress: PlanningProgress | null }) {
  const share = progress && progress.to_capture > 0 ? progress.captured / progress.to_capture : null;
  return (
    <div class="planning" aria-live="polite">
      <Meter share={share} label="Planning" tone="info" />
      <p class="sub">{progress === null ? 'planning begins' : (
        <>
          {simulatedText(progress)} recipes that may fit,{' '}
          {format.count(progress.space)} in the space, {format.duration(progress.elapsed_seconds)} of {BUDGET_SECONDS} s
          {progress.best_step_seconds !== null && <>; best so far <b>{format.seconds(progress.best_step_seconds)}</b> a step</>}
        </>
      )}</p>
    </div>
  );
}

// What the result will begin with, as far as it is known.
function SoFar({ asked, progress }: { asked: Asked; progress: PlanningProgress | null }) {
  const plan = rankedSoFar(asked.form, asked.config, progress);
  if (plan === null) return null;
  return (
    <>
      <Scatter ranked={plan.ranked} a={1} b={2} />
      <Ranking plan={plan} title="Ranking so far" />
    </>
  );
}

function Result({ plan, view, pick, submit }: {
  plan: PlanResult; view: PlanView; pick: (a: number, b: number) => void; submit: (ranked: RankedRecipe) => void;
}) {
  const { a, b } = view.form;
  const save = () => download(
    `plan-${plan.model}-${plan.cluster.replace(/[^\w.-]+/g, '-')}.json`, 'application/json', JSON.stringify(plan, null, 2));
  const saveRecipe = (r: RankedRecipe) => download(`${plan.model}-${r.rank}-recipe.toml`, 'application/toml', r.recipe_toml);
  return (
    <>
      {plan.explanation && (
        <Card title={plan.ranked.length ? 'Why this recipe' : 'Why there is none'}
          aside={<button type="button" class="download" onClick={save}>plan.json ↓</button>}>
          <Explanation text={plan.explanation} />
        </Card>
      )}
      {plan.ranked.length > 0 && (
        <>
          <Scatter ranked={plan.ranked} a={a} b={b} pick={(rank) => pick(a, rank)} />
          <PlanBars ranked={plan.ranked} />
          {plan.ranked.length > 1 && <PlanCompare ranked={plan.ranked} a={a} b={b} pick={pick} />}
        </>
      )}
      <Ranking plan={plan} actions={(ranked) => (
        <>
          <button type="button" class="primary" onClick={() => submit(ranked)}>Submit this …</button>
          <button type="button" onClick={() => pick(a, ranked.rank)}>Compare with rank {a}</button>
          <button type="button" onClick={() => saveRecipe(ranked)}>recipe.toml ↓</button>
        </>
      )} />
      <LeftOut plan={plan} />
    </>
  );
}

function Submit({ plan, asked, ranked, close }: { plan: PlanResult; asked: Asked; ranked: RankedRecipe; close: () => void }) {
  const model = asked.config === null ? { name: plan.model } : { name: asked.config.name, config_json: asked.config.text };
  const decided = "What the plan has decided becomes the job's constraints. The server plans again for the slots that it gives.";
  const nodes = asked.form.nodes > 1
    ? ` This plan is for ${asked.form.nodes} nodes: the service takes as many workers that are alike where none has ${
      devicesOf(ranked.recipe)} slots.` : '';
  return (
    <SubmitDialog title={`Submit rank ${ranked.rank}`} base={baseOfPlan(model, plan)} draft={draftOfRecipe(plan, ranked, '')}
      note={`${decided}${nodes}`}
      close={close} />
  );
}
