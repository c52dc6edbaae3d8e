(() => {
  const live = document.getElementById("live");
  let last = "";
  const look = async () => {
    try {
      const answer = await fetch(location.href, { headers: { part: "1" } });
      const html = await answer.text();
      if (answer.ok && html !== last) live.innerHTML = last = html;
      if (answer.headers.get("More") !== "1") return;
    } catch { return; }
    setTimeout(look, 300);
  };
  if (live && live.dataset.more === "1") setTimeout(look, 300);
})();
