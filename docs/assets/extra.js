// Tables that scroll in themselves are reached by keyboard; the theme wraps them when a page is shown.
new MutationObserver(() => {
  for (const one of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) one.tabIndex = 0
}).observe(document.body, { childList: true, subtree: true })
// An option in a text is not broken behind its hyphens.
for (const one of document.querySelectorAll(".md-typeset :is(p, li) > code")) if (one.textContent.length < 30) one.style.whiteSpace = "nowrap"
// A page that is opened from a disk has no search: the theme asks for its index by HTTP.
if (location.protocol === "file:") document.querySelector("label.md-header__button[for=__search]")?.remove()
