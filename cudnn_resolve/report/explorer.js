const D=JSON.parse(document.getElementById('data')?.textContent||'null'),form=document.querySelector('.picker');
const state=()=>new URLSearchParams(location.hash.slice(1));
const parts=t=>t.split('.').map(Number);
const older=(a,b)=>{a=parts(a);b=parts(b);for(let i=0;i<b.length;i++)if((a[i]||0)!==b[i])return(a[i]||0)<b[i];return false};
const word=t=>/^[\w.=+-]+$/.test(t)?t:"'"+t+"'";
function picked(){const o=form.gpu.selectedOptions[0],cc=o?.dataset.cc||'',driver=form.driver.value.trim().replace(/^R/i,'');
 return{gpu:form.gpu.value,cc,at:cc?D.gpus.indexOf(cc)+1:0,driver:/^\d+(\.\d+)*$/.test(driver)?driver:'',typed:driver,python:form.python.value}}
/* why a profile (the oldest driver for each GPU) does not hold on the picked machine; empty where it does */
function refusal(number,p){const need=D.profiles[number][p.at];
 if(need===null)return'no code for compute capability '+p.cc;
 const last=p.at?D.lasts[p.at-1]:null;
 if(p.driver&&last&&parts(p.driver)[0]>last)return'R'+last+' is the last driver branch for compute capability '+p.cc;
 return p.driver&&need&&older(p.driver,need)?'it needs driver '+need+' or newer':''}
function why(builds,p){const said=[];
 for(const b of builds)for(const[python,number]of Object.entries(b))if(!p.python||python===p.python){const r=refusal(number,p);if(!r)return'';said.push(r)}
 const all=[...new Set(builds.flatMap(b=>Object.keys(b)))];
 if(!said.length)return'no build for Python '+p.python+(all.length?'; there are builds for '+all.join(', '):'');
 return said.find(s=>s.startsWith('it needs'))||said[0]}
const options=p=>(p.gpu?' --gpu '+word(p.gpu):'')+(p.driver?' --driver '+p.driver:'')+(p.python?' --python-version '+p.python:'');
const machine=p=>[p.gpu,p.driver&&'driver '+p.driver,p.python&&'Python '+p.python].filter(Boolean).join(', ');
function element(name,text,into){const e=document.createElement(name);e.textContent=text;into.append(e);return e}
function save(change){const s=state();for(const[k,v]of Object.entries(change))v?s.set(k,v):s.delete(k);
 history.replaceState(null,'','#'+s);links()}
function links(){const s=state();s.delete('open');const h=s.toString();
 for(const a of document.querySelectorAll('nav a,.cards a'))a.href=a.href.split('#')[0]+(h?'#'+h:'')}
/* what was counted; first of all that a driver cannot be read, for then the answer is one for any */
function tell(p,text){const bad=p.typed&&!p.driver;form.driver.setAttribute('aria-invalid',!!bad);
 form.querySelector('output').textContent=(bad?'“'+p.typed+'” is no driver such as 550.54.15 and is left out. ':'')+text}
function releases(p){let count=0;
 for(const body of document.querySelectorAll('[data-release]')){const v=body.dataset.release,no=why(D.rows[v],p);
  body.classList.toggle('off',!!no);count+=!no;if(body.rows[1])judge(body,no,p)}
 tell(p,machine(p)?count+' of '+Object.keys(D.rows).length+' releases run':'')}
function judge(body,no,p){body.querySelector('.verdict').textContent=no?'Does not run with '+machine(p)+': '+no+'.':machine(p)?'Runs with '+machine(p)+'.':'';
 body.querySelector('.command').textContent='cudnn-resolve plan -f '+D.targets[body.dataset.release]+options(p)}
/* the row under a release is made when it is first opened */
function open_(v,is){const body=document.querySelector('[data-release="'+CSS.escape(v)+'"]');if(!body)return;
 if(!body.rows[1]){const row=body.insertRow(),cell=row.insertCell(),p=picked();row.className='detail';cell.colSpan=body.rows[0].cells.length;
  cell.innerHTML='<p class=verdict role=status></p><pre class=command></pre>'+D.details[v][0]+
   (D.details[v][1].length?'<p>Sources:</p><ol>'+D.details[v][1].map(n=>'<li>'+D.sources[n]).join('')+'</ol>':'');judge(body,why(D.rows[v],p),p)}
 body.querySelector('button').setAttribute('aria-expanded',is);body.rows[1].hidden=!is}
function judged(key,p){const[a,b]=key.split(' '),[answers]=D.rows[key];
 const no=[why(D.alone[0][a],p),why(D.alone[1][b],p)],mine=answers.filter(x=>!p.python||x[0]===p.python);
 const fit=mine.find(x=>!refusal(x[1],p));
 return{no,fit,kind:fit?'yes':!mine.length||no[0]||no[1]?'off':'ask'}}
function joint(p){let count=0;
 for(const b of document.querySelectorAll('[data-pair]')){const key=b.dataset.pair,j=judged(key,p),td=b.parentNode;
  count+=j.kind==='yes';if(!D.rows[key][0].length)continue;
  td.classList.toggle('off',j.kind==='off');td.classList.toggle('ask',j.kind==='ask');
  if(j.fit)b.textContent=j.fit[3]?j.fit[3].split('.').slice(0,2).join('.'):'✓'}
 tell(p,count+' of '+Object.keys(D.rows).length+' pairs'+(machine(p)?' with '+machine(p):''));
 const shown=state().get('open');if(shown&&Object.hasOwn(D.rows,shown))panel(shown,p)}
function panel(key,p){const box=document.getElementById('panel'),[a,b]=key.split(' '),[answers,reason]=D.rows[key],j=judged(key,p);
 box.textContent='';
 for(const x of document.querySelectorAll('[data-pair]'))x.setAttribute('aria-pressed',x.dataset.pair===key);
 element('h2',D.titles[0]+' '+a+' and '+D.titles[1]+' '+b,box);
 const on=machine(p)?' with '+machine(p):'';
 if(!answers.length)element('p','They share no environment: '+reason+'.',box);
 else if(j.kind==='yes')element('p','They share an environment'+on+': cuDNN '+(j.fit[3]||'none')+', CUDA '+(j.fit[2]||'none')+', Python '+j.fit[0]+
  ', driver '+(D.profiles[j.fit[1]][p.at]||'any')+' or newer. Builds: '+j.fit[4].join(', ')+'.',box);
 else if(j.kind==='ask')element('p','Each runs alone'+on+', but the builds that are chosen elsewhere do not. Others may: the command tells.',box);
 else element('p','They share no environment'+on+': '+([0,1].filter(i=>j.no[i]).map(i=>D.titles[i]+' '+(i?b:a)+': '+j.no[i]).join('; ')||
  'there is no answer on Python '+p.python)+'.',box);
 element('pre','cudnn-resolve plan -f '+D.packages[0]+'=='+a+' -f '+D.packages[1]+'=='+b+options(p),box);
 if(answers.length){element('p','On each Python:',box);const list=element('ul','',box);
  for(const x of answers)element('li','Python '+x[0]+': cuDNN '+(x[3]||'none')+', CUDA '+(x[2]||'none')+', '+x[4].join(', '),list)}
 const left=(j.fit||answers[0]||[])[5]||[];
 if(left.length){element('p','Pins of wheels that are left, since NVIDIA keeps a newer minor compatible:',box);
  const list=element('ul','',box);for(const x of left)element('li',x,list)}
 const more=element('p','Where each alone runs, and the sources: ',box);
 [a,b].forEach((v,i)=>{const link=element('a',D.titles[i]+' '+v,more);link.href=D.files[i]+'.html#open='+v;more.append(i?'.':' and ')})}
if(form){const s=state();form.gpu.value=s.get('gpu')||'';form.driver.value=s.get('driver')||'';form.python.value=s.get('python')||'';
 const opened=new Set((s.get('open')||'').split(',').filter(Boolean)),draw=()=>(D.targets?releases:joint)(picked());
 const changed=()=>{save({gpu:form.gpu.value,driver:form.driver.value.trim(),python:form.python.value});draw()};
 form.oninput=changed;form.onreset=()=>setTimeout(changed);form.onsubmit=()=>false;
 document.querySelector('.map').onclick=e=>{const b=e.target.closest('button');if(!b)return;
  if(b.dataset.pair){save({open:b.dataset.pair});panel(b.dataset.pair,picked());document.getElementById('panel').scrollIntoView({block:'nearest'});return}
  const v=b.closest('tbody').dataset.release,is=b.getAttribute('aria-expanded')!=='true';open_(v,is);
  is?opened.add(v):opened.delete(v);save({open:[...opened].join(',')})};
 draw();if(D.targets){for(const v of opened)open_(v,true);document.querySelector('.detail:not([hidden])')?.parentNode.scrollIntoView({block:'start'})}
 addEventListener('hashchange',()=>location.reload())}
links();
