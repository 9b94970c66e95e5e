'use strict';

// Data of the page, which report/explorer.py writes: null on pages without a picker.
const DATA = JSON.parse(document.getElementById('data')?.textContent || 'null');
const form = document.querySelector('.picker');

const state = () => new URLSearchParams(location.hash.slice(1));
const parts = version => version.split('.').map(Number);
const quoted = word => /^[\w.=+-]+$/.test(word) ? word : "'" + word + "'";

function isOlder(version, than) {
  const a = parts(version), b = parts(than);
  for (let i = 0; i < b.length; i++) {
    if ((a[i] || 0) !== b[i]) return (a[i] || 0) < b[i];
  }
  return false;
}

function element(name, text, parent) {
  const made = document.createElement(name);
  made.textContent = text;
  parent.append(made);
  return made;
}

// ---- the picked machine

function picked() {
  const capability = form.gpu.selectedOptions[0]?.dataset.cc || '';
  const typed = form.driver.value.trim().replace(/^R/i, '');
  return {
    gpu: form.gpu.value,
    capability,
    column: capability ? DATA.gpus.indexOf(capability) + 1 : 0, // of a driver profile; 0 = any GPU
    driver: /^\d+(\.\d+)*$/.test(typed) ? typed : '',
    typedDriver: typed,
    python: form.python.value,
  };
}

const machineText = machine =>
  [machine.gpu, machine.driver && 'driver ' + machine.driver, machine.python && 'Python ' + machine.python].filter(Boolean).join(', ');

const planOptions = machine =>
  (machine.gpu ? ' --gpu ' + quoted(machine.gpu) : '') +
  (machine.driver ? ' --driver ' + machine.driver : '') +
  (machine.python ? ' --python-version ' + machine.python : '');

// Why a profile (the oldest driver for each GPU) does not fit the machine; empty if it does.
function refusal(profile, machine) {
  const needed = DATA.profiles[profile][machine.column];
  if (needed === null) return 'no code for compute capability ' + machine.capability;
  const last = machine.column ? DATA.lasts[machine.column - 1] : null;
  if (machine.driver && last && parts(machine.driver)[0] > last) {
    return 'R' + last + ' is the last driver branch for compute capability ' + machine.capability;
  }
  return machine.driver && needed && isOlder(machine.driver, needed) ? 'it needs driver ' + needed + ' or newer' : '';
}

// Why none of these builds runs on the machine; empty if one does.
function whyNot(builds, machine) {
  const reasons = [];
  for (const build of builds) {
    for (const [python, profile] of Object.entries(build)) {
      if (machine.python && python !== machine.python) continue;
      const reason = refusal(profile, machine);
      if (!reason) return '';
      reasons.push(reason);
    }
  }
  if (reasons.length) return reasons.find(reason => reason.startsWith('it needs')) || reasons[0];
  const pythons = [...new Set(builds.flatMap(build => Object.keys(build)))];
  return 'no build for Python ' + machine.python + (pythons.length ? '; builds exist for ' + pythons.join(', ') : '');
}

// ---- the address, which records what is picked and open

function save(change) {
  const saved = state();
  for (const [key, value] of Object.entries(change)) value ? saved.set(key, value) : saved.delete(key);
  history.replaceState(null, '', '#' + saved);
  updateLinks();
}

function updateLinks() {
  const saved = state();
  saved.delete('open');
  const hash = saved.toString();
  for (const link of document.querySelectorAll('nav a,.cards a')) link.href = link.href.split('#')[0] + (hash ? '#' + hash : '');
}

function tell(machine, count) {
  const isUnreadable = machine.typedDriver && !machine.driver;
  form.driver.setAttribute('aria-invalid', !!isUnreadable);
  const warning = isUnreadable ? '“' + machine.typedDriver + '” is not a driver version such as 550.54.15 and is ignored. ' : '';
  form.querySelector('output').textContent = warning + count;
}

// ---- the page of one framework

function drawReleases(machine) {
  let count = 0;
  for (const body of document.querySelectorAll('[data-release]')) {
    const reason = whyNot(DATA.rows[body.dataset.release], machine);
    body.classList.toggle('off', !!reason);
    count += !reason;
    if (body.rows[1]) drawDetail(body, reason, machine);
  }
  tell(machine, machineText(machine) ? count + ' of ' + Object.keys(DATA.rows).length + ' releases run' : '');
}

function drawDetail(body, reason, machine) {
  const on = machineText(machine);
  body.querySelector('.verdict').textContent = reason ? 'Does not run with ' + on + ': ' + reason + '.' : on ? 'Runs with ' + on + '.' : '';
  body.querySelector('.command').textContent = 'cudnn-resolve plan -f ' + DATA.targets[body.dataset.release] + planOptions(machine);
}

// The row below a release is made when it is first opened.
function toggleRelease(version, isOpen) {
  const body = document.querySelector('[data-release="' + CSS.escape(version) + '"]');
  if (!body) return;
  if (!body.rows[1]) {
    const row = body.insertRow(), cell = row.insertCell(), machine = picked();
    const [details, sources] = DATA.details[version];
    row.className = 'detail';
    cell.colSpan = body.rows[0].cells.length;
    cell.innerHTML = '<p class=verdict role=status></p><pre class=command></pre>' + details +
      (sources.length ? '<p>Sources:</p><ol>' + sources.map(number => '<li>' + DATA.sources[number]).join('') + '</ol>' : '');
    drawDetail(body, whyNot(DATA.rows[version], machine), machine);
  }
  body.querySelector('button').setAttribute('aria-expanded', isOpen);
  body.rows[1].hidden = !isOpen;
}

// ---- the page of two frameworks

// An answer is [Python, driver profile, CUDA, cuDNN, builds, overridden pins].
function judgePair(key, machine) {
  const [first, second] = key.split(' '), [answers] = DATA.rows[key];
  const alone = [whyNot(DATA.alone[0][first], machine), whyNot(DATA.alone[1][second], machine)];
  const candidates = answers.filter(answer => !machine.python || answer[0] === machine.python);
  const answer = candidates.find(candidate => !refusal(candidate[1], machine));
  return { alone, answer, kind: answer ? 'yes' : !candidates.length || alone[0] || alone[1] ? 'off' : 'ask' };
}

function drawPairs(machine) {
  let count = 0;
  for (const button of document.querySelectorAll('[data-pair]')) {
    const key = button.dataset.pair, judged = judgePair(key, machine), cell = button.parentNode;
    count += judged.kind === 'yes';
    if (!DATA.rows[key][0].length) continue;
    cell.classList.toggle('off', judged.kind === 'off');
    cell.classList.toggle('ask', judged.kind === 'ask');
    if (judged.answer) button.textContent = judged.answer[3] ? judged.answer[3].split('.').slice(0, 2).join('.') : '✓';
  }
  const on = machineText(machine);
  tell(machine, count + ' of ' + Object.keys(DATA.rows).length + ' pairs' + (on ? ' with ' + on : ''));
  const open = state().get('open');
  if (open && Object.hasOwn(DATA.rows, open)) drawPanel(open, machine);
}

function verdictText(key, judged, machine) {
  const versions = key.split(' '), [answers, reason] = DATA.rows[key];
  const on = machineText(machine) ? ' with ' + machineText(machine) : '';
  if (!answers.length) return 'They cannot share an environment: ' + reason + '.';
  if (judged.kind === 'yes') {
    const [python, profile, cuda, cudnn, builds] = judged.answer;
    return 'They can share an environment' + on + ': cuDNN ' + (cudnn || 'none') + ', CUDA ' + (cuda || 'none') + ', Python ' + python +
      ', driver ' + (DATA.profiles[profile][machine.column] || 'any') + ' or newer. Builds: ' + builds.join(', ') + '.';
  }
  if (judged.kind === 'ask') {
    return 'Each runs alone' + on + ', but the builds chosen for other machines do not. Others may: run the command to find out.';
  }
  const reasons = [0, 1].filter(i => judged.alone[i]).map(i => DATA.titles[i] + ' ' + versions[i] + ': ' + judged.alone[i]);
  return 'They cannot share an environment' + on + ': ' + (reasons.join('; ') || 'no answer for Python ' + machine.python) + '.';
}

function drawPanel(key, machine) {
  const box = document.getElementById('panel'), [first, second] = key.split(' '), [answers] = DATA.rows[key];
  const judged = judgePair(key, machine);
  box.textContent = '';
  for (const button of document.querySelectorAll('[data-pair]')) button.setAttribute('aria-pressed', button.dataset.pair === key);
  element('h2', DATA.titles[0] + ' ' + first + ' and ' + DATA.titles[1] + ' ' + second, box);
  element('p', verdictText(key, judged, machine), box);
  const targets = ' -f ' + DATA.packages[0] + '==' + first + ' -f ' + DATA.packages[1] + '==' + second;
  element('pre', 'cudnn-resolve plan' + targets + planOptions(machine), box);
  if (answers.length) {
    element('p', 'For each Python version:', box);
    const list = element('ul', '', box);
    for (const [python, , cuda, cudnn, builds] of answers) {
      element('li', 'Python ' + python + ': cuDNN ' + (cudnn || 'none') + ', CUDA ' + (cuda || 'none') + ', ' + builds.join(', '), list);
    }
  }
  const overridden = (judged.answer || answers[0] || [])[5] || [];
  if (overridden.length) {
    element('p', 'Overridden pins (NVIDIA keeps newer minor versions compatible):', box);
    const list = element('ul', '', box);
    for (const pin of overridden) element('li', pin, list);
  }
  const more = element('p', 'Where each runs alone, and the sources: ', box);
  [first, second].forEach((version, i) => {
    const link = element('a', DATA.titles[i] + ' ' + version, more);
    link.href = DATA.files[i] + '.html#open=' + version;
    more.append(i ? '.' : ' and ');
  });
}

// ---- events

function start() {
  const saved = state();
  form.gpu.value = saved.get('gpu') || '';
  form.driver.value = saved.get('driver') || '';
  form.python.value = saved.get('python') || '';
  const opened = new Set((saved.get('open') || '').split(',').filter(Boolean));
  const draw = () => (DATA.targets ? drawReleases : drawPairs)(picked());
  const changed = () => {
    save({ gpu: form.gpu.value, driver: form.driver.value.trim(), python: form.python.value });
    draw();
  };
  form.oninput = changed;
  form.onreset = () => setTimeout(changed);
  form.onsubmit = () => false;
  document.querySelector('.map').onclick = event => {
    const button = event.target.closest('button');
    if (!button) return;
    if (button.dataset.pair) {
      save({ open: button.dataset.pair });
      drawPanel(button.dataset.pair, picked());
      document.getElementById('panel').scrollIntoView({ block: 'nearest' });
      return;
    }
    const version = button.closest('tbody').dataset.release, isOpen = button.getAttribute('aria-expanded') !== 'true';
    toggleRelease(version, isOpen);
    isOpen ? opened.add(version) : opened.delete(version);
    save({ open: [...opened].join(',') });
  };
  draw();
  if (DATA.targets) {
    for (const version of opened) toggleRelease(version, true);
    document.querySelector('.detail:not([hidden])')?.parentNode.scrollIntoView({ block: 'start' });
  }
  addEventListener('hashchange', () => location.reload());
}

if (form) start();
updateLinks();
