(()=>{const root=document.documentElement,theme=localStorage.theme||"";root.dataset.theme=theme=="dark"||theme!="light"&&matchMedia("(prefers-color-scheme:dark)").matches?"dark":"light";
const update=(a,b)=>{if(a.nodeName!=b.nodeName||a.childNodes.length!=b.childNodes.length){a.replaceWith(b.cloneNode(true));return}
if(a.nodeType==3){if(a.data!=b.data)a.data=b.data;return}
for(const x of b.attributes||[])if(a.getAttribute(x.name)!=x.value)a.setAttribute(x.name,x.value);
[...a.childNodes].forEach((n,i)=>update(n,b.childNodes[i]))};
setInterval(async()=>{if(document.hidden)return;try{const r=await fetch(location.href);if(!r.ok)return;
const b=new DOMParser().parseFromString(await r.text(),"text/html").getElementById("live");if(b)update(document.getElementById("live"),b)}catch{}},2000)})()
