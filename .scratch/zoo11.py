import sys, time, warnings
sys.path.insert(0,'src'); sys.path.insert(0,'tests'); sys.path.insert(0,'.')
from collections import Counter
import jax; print(jax.__version__, jax.devices())
import onebasin as ob, importlib
cases=[]
for m in ('mlp','activations','conv','recurrent','attention','traps'):
    cases+=list(importlib.import_module('tests.zoo.'+m).CASES)
bad=0; t0=time.time(); n=0
for c in cases:
    if c.slow: continue
    try:
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter('always')
            f,p,x=c.build(); s=ob.discover(f,p,x)
        n+=1
        got=Counter((q.size,q.copies,q.kinds) for q in s.factors)
        if c.factors is not None and got!=Counter(c.factors): bad+=1; print('MISMATCH',c.name,got-Counter(c.factors),Counter(c.factors)-got)
        ws=[str(i.message) for i in w if 'no rule' in str(i.message)]
        if ws: print(c.name,ws)
    except Exception as e: bad+=1; print('EXC',c.name,type(e).__name__,str(e)[:200])
    if time.time()-t0>420: print('time'); break
print('cases',n,'bad',bad,'seconds',time.time()-t0)
