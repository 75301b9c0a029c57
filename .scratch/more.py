import sys; sys.path.insert(0,'src')
import jax, jax.numpy as jnp, onebasin as ob
def f(p,x):
    def body(c): i,h=c; return i+1, jax.nn.relu(h@p['w'])
    h=jax.lax.while_loop(lambda c:c[0]<3, body, (0,x@p['a']))[1]
    return h@p['o']
p={k:jax.random.normal(jax.random.key(i),s) for i,(k,s) in enumerate({'a':(3,5),'w':(5,5),'o':(5,2)}.items())}
print(ob.discover(f,p,jnp.ones((4,3))))
