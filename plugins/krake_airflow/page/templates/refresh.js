(()=>{const d=document,light=()=>{const t=localStorage.theme;d.documentElement.dataset.theme=/light|dark/.test(t)?t:matchMedia("(prefers-color-scheme:dark)").matches?"dark":"light"};light();onstorage=light;
onclick=e=>{const a=e.target.closest("[target]"),of=n=>a.getAttribute(n);if(a&&parent!=self){e.preventDefault();Object.assign(parent.document.createElement("a"),{href:of("href"),target:of("target")}).click()}};
const same=(a,b)=>{for(const x of b.attributes||[])if(a.getAttribute(x.name)!=x.value)a.setAttribute(x.name,x.value);
const c=a.childNodes,e=b.childNodes;while(c[e.length])a.lastChild.remove();
e.forEach((m,i)=>{const n=c[i],o=m.cloneNode(1);n?n.nodeName!=m.nodeName||n.data!=m.data?n.replaceWith(o):same(n,m):a.append(o)})},next=()=>setTimeout(async()=>{if(!d.hidden)try{const r=await fetch("",{headers:{part:1}});r.ok&&same(live,new DOMParser().parseFromString(await r.text(),"text/html").body)}catch{}next()},2e3);self.live&&next()})()
