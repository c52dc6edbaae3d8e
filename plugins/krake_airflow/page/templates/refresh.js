(()=>{const root=document.documentElement,theme=localStorage.theme||"";root.dataset.theme=theme=="dark"||theme!="light"&&matchMedia("(prefers-color-scheme:dark)").matches?"dark":"light";
const update=(a,b)=>{if(a.nodeName!=b.nodeName||a.childNodes.length!=b.childNodes.length){a.replaceWith(b.cloneNode(true));return}
if(a.nodeType==3){if(a.data!=b.data)a.data=b.data;return}
for(const x of b.attributes||[])if(a.getAttribute(x.name)!=x.value)a.setAttribute(x.name,x.value);
[...a.childNodes].forEach((n,i)=>update(n,b.childNodes[i]))};
const later=()=>setTimeout(async()=>{if(!document.hidden)try{const r=await fetch(location.href,{signal:AbortSignal.timeout(6e4)});if(r.ok){
const b=new DOMParser().parseFromString(await r.text(),"text/html").getElementById("live");if(b)update(document.getElementById("live"),b)}}catch{}later()},2000);
later()})()
