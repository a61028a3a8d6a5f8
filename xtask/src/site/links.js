// Leads from each page of the book to the references beside it.
(() => {
  const bar = document.querySelector(".right-buttons");
  for (const [text, path] of [["API", "api/index.html"], ["Rust", "rust/ratekeeper/index.html"]]) {
    const link = document.createElement("a");
    link.href = path_to_root + path;
    link.textContent = text;
    link.className = "reference";
    bar.prepend(link);
  }
})();
