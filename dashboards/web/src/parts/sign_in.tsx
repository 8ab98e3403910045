// Asks for the token of a server that needs one. The server keeps it in a cookie that no script can read.
import { useId, useState } from 'preact/hooks';
import { signIn } from '../api';
import { Failure } from './basic';

export function SignIn() {
  const [token, setToken] = useState('');
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const heading = useId();
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await signIn(token.trim());
      location.reload();
    } catch (caught) {
      setError(caught);
      setBusy(false);
    }
  };
  return (
    <main id="main">
      <form onSubmit={submit} aria-labelledby={heading} class="sign-in">
        <h1 id={heading}>This server asks who you are</h1>
        <p class="sub">Who administers your project, or an operator, makes a token with <code>lego token create</code>. Where the
          server takes those of your identity provider, one of them is as good.</p>
        <div class="fields">
          <label class="long">Token
            <input type="password" required autofocus autocomplete="current-password" placeholder="lego_… or eyJ…" value={token}
              onInput={(e) => setToken(e.currentTarget.value)} />
          </label>
        </div>
        {error !== null && <Failure error={error} />}
        <div class="dialog-buttons"><button type="submit" class="primary" disabled={busy}>Sign in</button></div>
      </form>
    </main>
  );
}
